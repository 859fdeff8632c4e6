"""Questions with what a verifier needs to judge an answer."""
