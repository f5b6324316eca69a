"""How well the memory finds the turns that answer a question: LoCoMo and LongMemEval, judged by no model."""
