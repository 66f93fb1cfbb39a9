import { z } from "zod";
import type { ContainerSpec } from "../../../protocol/sections/exec/config.ts";

/** What of the machine a container was given when it was made. */
export const Privileges = z.object({
  privileged: z.boolean(),
  /** Added ones, without `CAP_`. */
  capabilities: z.array(z.string()),
  /** Sources of its binds, as the definition wrote them. */
  binds: z.array(z.string()),
});
export type Privileges = z.infer<typeof Privileges>;

/** One text for the same privileges, for the ledger. */
export function privilegesText({
  privileged,
  capabilities,
  mounts,
}: Pick<ContainerSpec, "privileged" | "capabilities" | "mounts">): string {
  const binds = mounts.flatMap(({ kind, source }) => (kind === "bind" ? [source] : []));
  const said: Privileges = { privileged, capabilities: capabilities.add.toSorted(), binds: binds.toSorted() };
  return JSON.stringify(said);
}

/** What such a text says; undefined where there is none, or it cannot be read. */
export function privilegesOf(text: string | undefined): Privileges | undefined {
  if (text === undefined) return undefined;
  try {
    return Privileges.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}
