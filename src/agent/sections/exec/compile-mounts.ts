import type { Mount } from "../../../protocol/sections/exec/config.ts";

/** The engine's form of a volume, or why it is unavailable. */
export type VolumeLookup =
  | {
      readonly engineName: string;
      readonly isEncrypted: boolean;
      /** Directory of the volume. With it the engine recreates the same volume instead of an empty one after somebody deleted it. */
      readonly directory?: string;
    }
  | { readonly missing: string };

export interface CompiledMounts {
  /** `HostConfig.Mounts`, sorted by destination. */
  readonly mounts: readonly Readonly<Record<string, unknown>>[];
  readonly hasEncryptedVolume: boolean;
}

export const OWNER_LABEL = "io.holdfast.owner";

/** Returns mounts in the engine's form; a missing source is an error and is not created. */
export function compileMounts(
  mounts: readonly Mount[],
  volumes: (name: string) => VolumeLookup,
  owner: string,
): CompiledMounts | { readonly missing: string } {
  let hasEncryptedVolume = false;
  const compiled: Record<string, unknown>[] = [];
  for (const { kind, source, dest } of mounts.toSorted((a, b) => (a.dest < b.dest ? -1 : 1))) {
    if (kind === "bind") {
      compiled.push({ Type: "bind", Source: source, Target: dest, BindOptions: { Propagation: "rprivate" } });
      continue;
    }
    const volume = volumes(source);
    if ("missing" in volume) return { missing: `volume ${source}: ${volume.missing}` };
    hasEncryptedVolume ||= volume.isEncrypted;
    compiled.push({
      Type: "volume",
      Source: volume.engineName,
      Target: dest,
      VolumeOptions: {
        Labels: { [OWNER_LABEL]: owner },
        ...(volume.directory === undefined
          ? {}
          : { DriverConfig: { Name: "local", Options: { type: "none", o: "bind", device: volume.directory } } }),
      },
    });
  }
  return { mounts: compiled, hasEncryptedVolume };
}
