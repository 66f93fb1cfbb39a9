import { toError } from "../../errors.ts";
import {
  changeResolverFile,
  MAX_CHANGE_BYTES,
  parseResolverFileChange,
} from "../../host/network/resolver/resolver-file.ts";
import { RESOLVER_FILES } from "../../host/net/resolver.ts";
import { readTextInput } from "../../host/process/text-input.ts";

/** Applies a change of /etc/resolv.conf from standard input, in a helper process of the agent. */
export async function run(): Promise<number> {
  try {
    const text = await readTextInput("-", MAX_CHANGE_BYTES, new AbortController().signal);
    await changeResolverFile(RESOLVER_FILES[0], parseResolverFileChange(text));
    return 0;
  } catch (thrown) {
    process.stderr.write(`${toError(thrown).message}\n`);
    return 1;
  }
}
