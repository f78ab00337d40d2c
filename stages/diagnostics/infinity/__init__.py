"""Where on its signal attention looks, how closely, and how many positions see one."""
