import { Lab } from "./lab.ts";
export async function check(dir: string, up: () => Promise<void>): Promise<number> {
  await up();
  await Lab.down(dir);
  return 0;
}
