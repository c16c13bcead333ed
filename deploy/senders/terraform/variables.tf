variable "name" {
  description = "Prefix of everything made here."
  type        = string
  default     = "medevac"
}

variable "leave_out" {
  description = "Patterns (file names without .json) that you don't want, e.g. [\"instance-state\"] in a large account."
  type        = set(string)
  default     = []
}

variable "consumer_role_names" {
  description = "IAM roles of the medevac processes that read the queue; each gets the read policy attached."
  type        = set(string)
  default     = []
}

variable "max_receives" {
  description = "Receives of a message before SQS itself puts it aside. medevac keeps what it can't read among its own dead letters, so this is only for an outage: it offers a message again after 2 minutes at most, and 1000 of those outlast a day."
  type        = number
  default     = 1000
}

variable "tags" {
  type    = map(string)
  default = {}
}
