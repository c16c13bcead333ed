"""What people are shown of incidents and questions, composed once for chat, terminal and console."""
