"""What stands behind the gateway: services that answer by themselves, that are passed on to, or that were recorded."""
