output "queue_url" {
  description = "What medevac's SQS consumer is pointed at."
  value       = aws_sqs_queue.events.url
}

output "dead_letter_queue_url" {
  description = "Should be empty: alarm on ApproximateNumberOfMessagesVisible."
  value       = aws_sqs_queue.dead.url
}

output "consumer_policy_arn" {
  description = "For the role of a consumer that is not in consumer_role_names."
  value       = aws_iam_policy.consumer.arn
}
