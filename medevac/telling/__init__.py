"""What people are shown of questions, composed once for chat, terminal and console; and of incidents in a chat."""
