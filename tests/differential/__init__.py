"""The checker against the engines' own code: random questions, both answers, and whatever they disagree on."""
