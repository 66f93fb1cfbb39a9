import { DIRECTORIES } from "../../frame/verb-options.ts";
import type { VerbSpec } from "../../frame/verb.ts";

export const agentVerb: VerbSpec = {
  name: "agent",
  summary: "run the agent of this node",
  arguments: [],
  options: {
    config: { value: "FILE", help: "local settings (/etc/holdfast/agent.json, if it is there)", complete: "file" },
    ...DIRECTORIES,
  },
  exits: ["ok", "failed", "usage"],
  example: "holdfast agent --state /var/lib/holdfast --run /run/holdfast",
};
