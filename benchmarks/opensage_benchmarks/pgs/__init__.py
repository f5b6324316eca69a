"""What checking by properties finds, and what it costs: section by section, without any model."""
