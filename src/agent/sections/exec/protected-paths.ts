import type { ProtectedPaths } from "./policy.ts";

/** Where this agent keeps its things. */
export interface OwnPlaces {
  readonly stateDir: string;
  readonly runDir: string;
  readonly overlay: { readonly stateDir: string; readonly runDir: string };
  /** The files of this program. */
  readonly programs?: readonly string[];
}

const SETTINGS_DIR = "/etc/holdfast";
/** Whoever may speak there is root on the machine. */
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

/** What no bind may show on this machine: of the engine in use, and of those that may be there besides. */
export function protectedPaths(
  own: OwnPlaces,
  engine: { readonly socketPath: string; readonly rootDirectory: string | undefined },
): ProtectedPaths {
  const { programs = [] } = own;
  const root = engine.rootDirectory ?? "";
  return {
    own: [...new Set([own.stateDir, own.runDir, own.overlay.stateDir, own.overlay.runDir, SETTINGS_DIR, ...programs])],
    sockets: [...new Set([engine.socketPath, ...SOCKETS])],
    engineDirectories: [...new Set([...(root.startsWith("/") ? [root] : []), ...ENGINE_DIRECTORIES])],
  };
}
