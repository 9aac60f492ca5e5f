"""Topics: one table of subscriptions on all servers, and what subscribers keep."""
