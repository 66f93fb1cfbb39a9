import type { ProtectedPaths } from "./policy.ts";

/** Where this agent keeps its things. */
export interface OwnPlaces {
  readonly stateDir: string;
  readonly runDir: string;
  readonly overlay: { readonly stateDir: string; readonly runDir: string };
}

const SETTINGS_DIR = "/etc/holdfast";
const SOCKETS = ["/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock"];
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
  const root = engine.rootDirectory ?? "";
  return {
    own: [...new Set([own.stateDir, own.runDir, own.overlay.stateDir, own.overlay.runDir, SETTINGS_DIR])],
    sockets: [...new Set([engine.socketPath, ...SOCKETS])],
    engineDirectories: [...new Set([...(root.startsWith("/") ? [root] : []), ...ENGINE_DIRECTORIES])],
  };
}
