import { MachineVolume } from "./records.ts";
import { json } from "../store/columns.ts";
import type { Executor } from "../store/database.ts";

/** Records of virtual machines' volumes; deleted with their node. */
export interface MachineVolumeStore {
  /** Sorted by name. */
  ofNode(node: string): Promise<readonly MachineVolume[]>;
  get(node: string, name: string): Promise<MachineVolume | undefined>;
  /** Adds a record, or replaces the one with this name. */
  put(node: string, volume: MachineVolume): Promise<void>;
  remove(node: string, name: string): Promise<void>;
}

type VolumeTables = {
  readonly machine_volumes: { readonly node: string; readonly name: string; readonly record: string };
};

export function machineVolumeStore(executor: Executor): MachineVolumeStore {
  const db = executor.$extendTables<VolumeTables>();
  const records = db.selectFrom("machine_volumes").select("record");
  return {
    async ofNode(node) {
      const rows = await records.where("node", "=", node).orderBy("name").execute();
      return rows.map((row) => json(row, "record", MachineVolume));
    },
    async get(node, name) {
      const row = await records.where("node", "=", node).where("name", "=", name).executeTakeFirst();
      return row === undefined ? undefined : json(row, "record", MachineVolume);
    },
    async put(node, volume) {
      const record = JSON.stringify(volume);
      await db
        .insertInto("machine_volumes")
        .values({ node, name: volume.name, record })
        .onConflict((conflict) => conflict.columns(["node", "name"]).doUpdateSet({ record }))
        .execute();
    },
    async remove(node, name) {
      await db.deleteFrom("machine_volumes").where("node", "=", node).where("name", "=", name).execute();
    },
  };
}
