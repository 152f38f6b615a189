"""Views: templates and the content of a trace come in, rendered .cfg files leave."""
