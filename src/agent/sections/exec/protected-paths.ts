import type { ProtectedPaths } from "./policy.ts";

/** Directories of this agent. */
export interface OwnPlaces {
  readonly stateDir: string;
  readonly runDir: string;
  readonly overlay: { readonly stateDir: string; readonly runDir: string };
  /** The program's own files. */
  readonly programs?: readonly string[];
}

/** The directories of an installed Holdfast, independent of this agent's options. */
const INSTALLED = [
  "/etc/holdfast",
  "/usr/lib/holdfast",
  "/usr/bin/holdfast",
  "/usr/local/bin/holdfast",
  "/var/lib/holdfast",
  "/var/lib/holdfast-overlay",
  "/var/lib/holdfast-versions",
  "/var/lib/holdfast-controller",
  "/run/holdfast",
  "/run/holdfast-overlay",
  "/run/holdfast-controller",
];
const UNIT_DIRECTORIES = ["/etc/systemd/system", "/usr/lib/systemd/system", "/run/systemd/system"];
const UNITS = ["agent", "overlay", "overlay@", "restore", "upgrade", "os-update", "controller"].flatMap((name) =>
  UNIT_DIRECTORIES.flatMap((directory) => {
    const unit = `${directory}/holdfast-${name}.service`;
    return [unit, `${unit}.d`];
  }),
);
/** Sockets that give root access to the machine. */
const SOCKETS = [
  "/run/docker.sock",
  "/run/podman/podman.sock",
  "/run/containerd/containerd.sock",
  "/run/crio/crio.sock",
  "/run/k3s/containerd/containerd.sock",
  "/run/dbus/system_bus_socket",
  "/run/systemd/private",
];
const ENGINE_DIRECTORIES = [
  "/var/lib/docker",
  "/var/lib/containerd",
  "/var/lib/containers",
  "/run/docker",
  "/run/containerd",
  "/run/containers",
  "/run/libpod",
];

/** Returns the paths that no bind may expose on this machine: of the engine in use and of other engines that may be installed. */
export function protectedPaths(
  own: OwnPlaces,
  engine: { readonly socketPath: string; readonly rootDirectory: string | undefined },
): ProtectedPaths {
  const { programs = [] } = own;
  const root = engine.rootDirectory ?? "";
  return {
    own: [
      ...new Set([
        own.stateDir,
        own.runDir,
        own.overlay.stateDir,
        own.overlay.runDir,
        ...INSTALLED,
        ...UNITS,
        ...programs,
      ]),
    ],
    sockets: [...new Set([engine.socketPath, ...SOCKETS])],
    engineDirectories: [...new Set([...(root.startsWith("/") ? [root] : []), ...ENGINE_DIRECTORIES])],
  };
}
