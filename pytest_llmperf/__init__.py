"""Performance regression tests of LLM serving whose numbers declare their denominator."""
