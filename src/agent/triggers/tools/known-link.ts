import { InputError } from "../../../errors.ts";
import type { Files } from "../../../host/files/files.ts";

/**
 * Checks that this machine has a link.
 * @throws {InputError} `not-found` naming the field.
 */
export async function needLink(files: Pick<Files, "list">, link: string, field: string): Promise<void> {
  if ((await files.list("/sys/class/net")).includes(link)) return;
  throw new InputError("not-found", `no interface ${link}`, { details: { field } });
}
