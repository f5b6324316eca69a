"""What a newcomer sees first: three small tasks on a real folder, several tries each, judged by running the result."""
