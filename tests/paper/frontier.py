"""Made-up rows of the frontier."""

from __future__ import annotations

from tests.paper.made_up import Machine, Rows

#: img/s on 256 px and on originals, PSNR in dB.
_SYSTEMS = {
    "pil": (700.0, 50.0, 99.0),
    "paper": (1050.0, 175.0, 29.2),
    "dali": (1700.0, 160.0, 60.1),
    "ours": (3900.0, 470.0, 43.4),
}


def rows(machine: Machine) -> Rows:
    """Four loaders on both image sets, and one that is not installed."""
    found: Rows = []
    for index, image_set in enumerate(("small_256", "original")):
        on = {
            "image_set": image_set,
            "subset": "all",
            "corpus": machine.corpus,
            "weights": machine.weights,
        }
        on |= {
            "device": machine.device,
            "device_kind": machine.kind,
            "cores": "2",
            "batch_size": "64",
        }
        for system, rates in _SYSTEMS.items():
            rate = rates[index] / machine.slower
            found.append(
                {
                    **{
                        "system": system,
                        **on,
                        "n_images": 4000,
                        "repeats": machine.repeats,
                        "img_per_s": rate,
                    },
                    **{
                        "img_per_s_min": rate * 0.97,
                        "img_per_s_max": rate * 1.02,
                        "psnr_db": rates[2],
                    },
                    **{"origin": "measured", "status": "ok", "reason": ""},
                }
            )
        found.append(
            {
                "system": "spdl",
                **on,
                "origin": "measured",
                "status": "unavailable",
                "reason": "spdl is not installed",
            }
        )
    return found
