"""What every adapter must do, whatever stands behind it. An adapter's tests subclass a suite and bring a rig."""
