"""Bare metal by Redfish: power, one-time boots and event logs of machines whose BMC an inventory names."""
