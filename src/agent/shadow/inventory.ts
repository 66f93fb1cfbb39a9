import { takeInventory } from "../../host/machine/inventory.ts";

/** Prints the inventory as one JSON object: the agent's own helper process. */
export async function run(): Promise<number> {
  process.stdout.write(`${JSON.stringify(await takeInventory(new AbortController().signal))}\n`);
  return 0;
}
