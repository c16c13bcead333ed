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
  description = "Deliveries of a message before it goes to the dead-letter queue. medevac deletes a message only when all of it is held, so a ledger that is down for a while uses these up; together with the visibility time-out this is the outage that is survived without the dead-letter queue."
  type        = number
  default     = 20
}

variable "tags" {
  type    = map(string)
  default = {}
}
