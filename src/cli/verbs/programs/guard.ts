import { DIRECTORIES } from "../../frame/verb-options.ts";
import type { VerbSpec } from "../../frame/verb.ts";

export const guardVerb: VerbSpec = {
  name: "guard",
  summary: "revert a change that the agent could not confirm",
  about:
    "'restore' takes back a pending change at once unless a living agent has it and its time is not over; 'watch' waits for the end of its " +
    "time first. The agent starts a watch of its own with every change that could cut the node off.",
  arguments: [{ name: "task", isRequired: true, help: "restore or watch", complete: ["restore", "watch"] }],
  options: {
    state: { value: "DIR", help: "state directory of the agent (/var/lib/holdfast)", complete: "directory" },
    run: { value: "DIR", help: "run directory of the agent (/run/holdfast)", complete: "directory" },
    managed: { help: "systemd runs the agent" },
    id: { value: "UUID", help: "for watch: the change to watch, and no other" },
    help: DIRECTORIES.help,
  },
  exits: ["ok", "failed", "usage"],
  example: "holdfast guard restore --state /var/lib/holdfast",
};
