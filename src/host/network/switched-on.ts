import type { Reader } from "../reader.ts";
import { readSysctls, writeSysctl } from "./ip/sysctls.ts";

/** What switches settings of the kernel on. */
export interface SwitchOptions {
  readonly reader: Reader;
  /** Keeps what a setting was before it is changed. */
  readonly record: (former: Readonly<Record<string, string>>) => Promise<void>;
  /** By default the kernel's. */
  readonly write?: (name: string, value: string) => Promise<void>;
}

/**
 * Sets sysctls to 1, and those that are already are left alone; answers whether this kernel has them all, and touches none where it
 * has not. @throws {HostError} `sysctl-failed`, and as `record` fails: then nothing was changed.
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
