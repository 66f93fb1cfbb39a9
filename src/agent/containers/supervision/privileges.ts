import { z } from "zod";
import type { ContainerSpec } from "../../../protocol/sections/exec/config.ts";

/** Privileges that a container got at creation. */
export const Privileges = z.object({
  privileged: z.boolean(),
  /** Added capabilities, without `CAP_`. */
  capabilities: z.array(z.string()),
  /** Sources of its binds, as written in the definition. */
  binds: z.array(z.string()),
});
export type Privileges = z.infer<typeof Privileges>;

/** Serializes privileges canonically for the ledger. */
export function privilegesText({
  privileged,
  capabilities,
  mounts,
}: Pick<ContainerSpec, "privileged" | "capabilities" | "mounts">): string {
  const binds = mounts.flatMap(({ kind, source }) => (kind === "bind" ? [source] : []));
  const said: Privileges = { privileged, capabilities: capabilities.add.toSorted(), binds: binds.toSorted() };
  return JSON.stringify(said);
}

/** Parses serialized privileges; undefined if absent or invalid. */
export function privilegesOf(text: string | undefined): Privileges | undefined {
  if (text === undefined) return undefined;
  try {
    return Privileges.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}
