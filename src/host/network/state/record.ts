import { z } from "zod";
import type { Files } from "../../files/files.ts";
import { tellingDamage, type OnDamage } from "../../files/damage.ts";
import { stateFile, valueOf, type StateFile } from "../../files/state-file.ts";

/** What of the machine was found before it was adjusted, and what else has to outlive the agent. */
export const NetworkRecord = z.object({
  links: z.record(z.string(), z.object({ mtu: z.number(), isUp: z.boolean() })),
  sysctls: z.record(z.string(), z.string()),
  /** The table of each VRF, by its name. */
  vrfs: z.record(z.string(), z.number()),
  /** The texts of the firewall that was loaded and of the one before, by digest. */
  firewalls: z.array(z.object({ digest: z.string(), text: z.string() })),
  /** The interface that was the WAN: what a plan does to the default route must not make another of it. */
  wan: z.exactOptional(z.string()),
});
export type NetworkRecord = z.infer<typeof NetworkRecord>;

/** Of a machine of which nothing was ever adjusted. */
export const EMPTY_RECORD: NetworkRecord = { links: {}, sysctls: {}, vrfs: {}, firewalls: [] };

/** Whether nothing was ever adjusted. */
export function isEmptyRecord({ links, sysctls, vrfs, firewalls }: NetworkRecord): boolean {
  return [links, sysctls, vrfs, firewalls].every((part) => Object.keys(part).length === 0);
}

/** Where a record is kept. */
export interface RecordStore {
  load(): Promise<NetworkRecord>;
  save(record: NetworkRecord): Promise<void>;
}

/** Where it is kept: `STATE/network-record.json`. */
export function networkRecordFile(files: Files, stateDir: string, onDamage?: OnDamage): StateFile<NetworkRecord> {
  const name = "network-record.json";
  const options = { path: `${stateDir}/${name}`, schema: NetworkRecord, keepsPrevious: true };
  return tellingDamage(stateFile(files, options), name, onDamage);
}

/** What was noted of the network as it was; read once. */
export function networkRecord(files: Files, stateDir: string, onDamage?: OnDamage): RecordStore {
  const file = networkRecordFile(files, stateDir, onDamage);
  let known: NetworkRecord | undefined;
  return {
    async load() {
      known ??= valueOf(await file.load()) ?? EMPTY_RECORD;
      return known;
    },
    async save(record) {
      if (isEmptyRecord(record)) await file.remove();
      else await file.save(record);
      known = record;
    },
  };
}
