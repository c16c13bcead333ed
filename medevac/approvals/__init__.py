"""Who was asked, who answered, and what follows: distinct voters, reject wins, expiry is a no."""
