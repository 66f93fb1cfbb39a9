import type { Reader } from "../reader.ts";
import { readSysctls, writeSysctl } from "./ip/sysctls.ts";

/** Dependencies of switching kernel settings on. */
export interface SwitchOptions {
  readonly reader: Reader;
  /** Stores the former values before they are changed. */
  readonly record: (former: Readonly<Record<string, string>>) => Promise<void>;
  /** Writes the kernel's sysctl by default. */
  readonly write?: (name: string, value: string) => Promise<void>;
}

/**
 * Sets sysctls to 1, except those already set. Returns whether this kernel has all of them; changes none otherwise.
 * @throws {HostError} `sysctl-failed`, and errors of `record`, before any change.
 */
export async function switchOn(
  names: readonly string[],
  { reader, record, write = writeSysctl }: SwitchOptions,
): Promise<boolean> {
  const values = readSysctls(reader, names);
  if (values.size < names.length) return false;
  const off = [...values].filter(([, value]) => value !== "1");
  if (off.length === 0) return true;
  await record(Object.fromEntries(off));
  for (const [name] of off) await write(name, "1");
  return true;
}
