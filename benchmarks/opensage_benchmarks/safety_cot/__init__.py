"""Safety-CoT measured: rewards, synthesis, judges side by side, policies over a bank. No model is asked."""
