"""python -m controlplane.supervisor.prepare: migrate, collect static files, seed the demo.

One process for the three, since loading Django costs more than each of them.
"""

from __future__ import annotations


def main() -> None:
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", interactive=False, verbosity=0)
    print("migrated", flush=True)
    call_command("collectstatic", interactive=False, verbosity=0)
    print("collected static files", flush=True)
    # With --no-demo too: the sandbox cluster, its policies, and a user to sign in as.
    call_command("seed_demo")


if __name__ == "__main__":
    main()
