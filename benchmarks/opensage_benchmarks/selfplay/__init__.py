"""What the Seen Detector tells apart, and what its reward does in worlds that collapse and in worlds that do not."""
