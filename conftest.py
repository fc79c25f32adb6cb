"""What only the top level may say: our own tests run the plugin inside pytest."""

pytest_plugins = ["pytester"]
