/** Architecture names of images, by the engine's name of the machine. */
const ARCHITECTURES: ReadonlyMap<string, string> = new Map([
  ["x86_64", "amd64"],
  ["aarch64", "arm64"],
  ["armv7l", "arm"],
  ["i686", "386"],
]);

/** Image platforms that a machine of another platform also runs without emulation. */
const COMPATIBLE: ReadonlyMap<string, string> = new Map([
  ["linux/386", "linux/amd64"],
  ["linux/arm", "linux/arm64"],
]);

/** Returns the image platform of a machine, such as `linux/arm64`; empty for an unknown architecture, for which the engine decides. */
export function platformOf(architecture: string | undefined): string {
  const plain = architecture === undefined ? undefined : (ARCHITECTURES.get(architecture) ?? known(architecture));
  return plain === undefined ? "" : `linux/${plain}`;
}

/** Reports whether a machine runs images of a platform; true if either is unknown, since then the engine decides. */
export function runsOn(image: string | undefined, machine: string): boolean {
  return image === undefined || machine === "" || image === machine || COMPATIBLE.get(image) === machine;
}

/** Returns an architecture's image name, which Podman reports. */
function known(architecture: string): string | undefined {
  return [...ARCHITECTURES.values()].find((name) => name === architecture);
}
