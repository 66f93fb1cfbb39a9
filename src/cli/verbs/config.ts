import { InputError } from "../../errors.ts";
import { nearest } from "../../lib/text/nearest.ts";
import { safeJson } from "../../lib/text/terminal-text.ts";
import { ADMIN_SOCKET } from "../../protocol/local/api.ts";
import { Config } from "../../protocol/documents/documents.ts";
import { sectionNames } from "../../protocol/sections/sections.ts";
import { ask } from "../frame/client.ts";
import type { Verb } from "../frame/verb.ts";
import { COMMON } from "../frame/verb-options.ts";

export const configVerb: Verb = {
  name: "config",
  summary: "show the applied configuration, or one section of it",
  about: "Merges the documents of the node and its cluster. Secrets are shown as ***.",
  arguments: [
    { name: "action", isRequired: true, help: "show", complete: ["show"] },
    { name: "section", isRequired: false, help: "one section", complete: sectionNames },
  ],
  options: { secrets: { help: "show secrets in clear text" }, ...COMMON },
  exits: ["ok", "failed", "usage", "unreachable", "timeout"],
  example: "holdfast config show connectors",
  output: Config,
  async run(call) {
    const [action, section] = call.positionals;
    if (action !== "show") throw new InputError("usage", `config takes show, not '${action ?? ""}'`);
    const name = sectionNames.find((name) => name === section);
    if (section !== undefined && name === undefined) {
      const near = nearest(section, sectionNames);
      throw new InputError(
        "usage",
        `there is no section '${section}'${near === undefined ? "" : `: did you mean ${near}?`}`,
      );
    }
    const path = call.values["secrets"] === true ? "/v1/config?secrets=1" : "/v1/config";
    const config = await ask(call, { method: "GET", path, socket: ADMIN_SOCKET }, Config);
    const shown = name === undefined ? config : config[name] === undefined ? {} : { [name]: config[name] };
    call.terminal.out(`${safeJson(shown, call.settings.isJson ? undefined : 2)}\n`);
    return "ok";
  },
};
