"""Who may do what: users with roles and limits, permissions, and how a session is judged by them."""
