"""The HTTP gateway: payloads in, reads and people's orders; nothing here decides."""
