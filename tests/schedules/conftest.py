from tests.schedules.scene import scene

__all__ = ["scene"]
