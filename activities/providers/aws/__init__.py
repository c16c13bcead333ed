"""Machines of Amazon EC2: alone, in Auto Scaling groups, in EKS managed node groups. Kind `aws`, extra `aws`."""
