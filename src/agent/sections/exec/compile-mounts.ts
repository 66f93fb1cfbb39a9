import type { Mount } from "../../../protocol/sections/exec/config.ts";

/** What a volume of a definition is in the engine, or why it cannot be had now. */
export type VolumeLookup =
  | {
      readonly engineName: string;
      readonly isEncrypted: boolean;
      /** What it binds. With it the engine makes the same volume again when somebody has removed it, and not an empty one. */
      readonly directory?: string;
    }
  | { readonly missing: string };

export interface CompiledMounts {
  /** `HostConfig.Mounts`, in the order of their places. */
  readonly mounts: readonly Readonly<Record<string, unknown>>[];
  readonly hasEncryptedVolume: boolean;
}

export const OWNER_LABEL = "io.holdfast.owner";

/** Mounts as the engine takes them: of the kind that fails on a missing source instead of making it. */
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
