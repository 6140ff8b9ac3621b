// Empty: its presence lets the package declare functions whose bodies are linked from elsewhere.
