# What AWS knows about the fleet's machines, into one queue that medevac reads: AWS Health, Spot and rebalance notices,
# instance states, Auto Scaling hooks, capacity reservations. Apply it once in each region (and account) with GPUs.
# AWS Health events that name no region arrive in us-east-1 only (us-west-2 as their backup); apply it there as well.

locals {
  patterns = {
    for file in fileset("${path.module}/patterns", "*.json") :
    trimsuffix(file, ".json") => file("${path.module}/patterns/${file}")
    if !contains(var.leave_out, trimsuffix(file, ".json"))
  }
}

data "aws_caller_identity" "current" {}

resource "aws_sqs_queue" "events" {
  name                       = "${var.name}-events"
  message_retention_seconds  = 345600 # 4 days
  visibility_timeout_seconds = 120    # the consumer asks for its own, and renews it while it works
  receive_wait_time_seconds  = 10
  sqs_managed_sse_enabled    = true
  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dead.arn
    maxReceiveCount     = var.max_receives
  })
  tags = var.tags
}

# What could not be delivered or taken, for a person to look at and to redrive.
resource "aws_sqs_queue" "dead" {
  name                      = "${var.name}-events-dead"
  message_retention_seconds = 1209600 # 14 days
  sqs_managed_sse_enabled   = true
  tags                      = var.tags
}

resource "aws_sqs_queue_redrive_allow_policy" "dead" {
  queue_url = aws_sqs_queue.dead.id
  redrive_allow_policy = jsonencode({
    redrivePermission = "byQueue"
    sourceQueueArns   = [aws_sqs_queue.events.arn]
  })
}

resource "aws_cloudwatch_event_rule" "this" {
  for_each      = local.patterns
  name          = "${var.name}-${each.key}"
  description   = "To medevac: ${each.key}"
  event_pattern = each.value
  tags          = var.tags
}

resource "aws_cloudwatch_event_target" "this" {
  for_each  = local.patterns
  rule      = aws_cloudwatch_event_rule.this[each.key].name
  target_id = "medevac"
  arn       = aws_sqs_queue.events.arn
  dead_letter_config {
    arn = aws_sqs_queue.dead.arn
  }
  retry_policy {
    maximum_event_age_in_seconds = 86400
    maximum_retry_attempts       = 185
  }
}

# Only these rules of this account may write, and nobody without TLS.
data "aws_iam_policy_document" "queue" {
  for_each = {
    events = aws_sqs_queue.events.arn
    dead   = aws_sqs_queue.dead.arn
  }
  statement {
    sid       = "EventBridgeSends"
    actions   = ["sqs:SendMessage"]
    resources = [each.value]
    principals {
      type        = "Service"
      identifiers = ["events.amazonaws.com"]
    }
    condition {
      test     = "ArnEquals"
      variable = "aws:SourceArn"
      values   = [for rule in aws_cloudwatch_event_rule.this : rule.arn]
    }
    condition {
      test     = "StringEquals"
      variable = "aws:SourceAccount"
      values   = [data.aws_caller_identity.current.account_id]
    }
  }
  statement {
    sid       = "TlsOnly"
    effect    = "Deny"
    actions   = ["sqs:*"]
    resources = [each.value]
    principals {
      type        = "*"
      identifiers = ["*"]
    }
    condition {
      test     = "Bool"
      variable = "aws:SecureTransport"
      values   = ["false"]
    }
  }
}

resource "aws_sqs_queue_policy" "events" {
  queue_url = aws_sqs_queue.events.id
  policy    = data.aws_iam_policy_document.queue["events"].json
}

resource "aws_sqs_queue_policy" "dead" {
  queue_url = aws_sqs_queue.dead.id
  policy    = data.aws_iam_policy_document.queue["dead"].json
}

# What medevac's consumer needs, and no more: it neither sends nor purges, and leaves the dead-letter queue to people.
data "aws_iam_policy_document" "consumer" {
  statement {
    actions   = ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility"]
    resources = [aws_sqs_queue.events.arn]
  }
}

resource "aws_iam_policy" "consumer" {
  name   = "${var.name}-events-read"
  policy = data.aws_iam_policy_document.consumer.json
  tags   = var.tags
}

resource "aws_iam_role_policy_attachment" "consumer" {
  for_each   = var.consumer_role_names
  role       = each.value
  policy_arn = aws_iam_policy.consumer.arn
}
