import { plainValue, safeJson } from "../../../lib/text/terminal-text.ts";
import { ImagesReport } from "../../../protocol/local/containers.ts";
import { tableText } from "../../text/table.ts";
import { triggerAnswer } from "../../frame/trigger-answer.ts";
import type { Verb } from "../../frame/verb.ts";
import { COMMON } from "../../frame/verb-options.ts";

export const imagesVerb: Verb = {
  name: "images",
  summary: "show the images that the container engine of this node has",
  about: "Needs root.",
  arguments: [],
  options: COMMON,
  exits: ["ok", "failed", "usage", "unreachable", "timeout"],
  example: "holdfast images",
  output: ImagesReport,
  async run(call) {
    const { terminal, settings } = call;
    const report = await triggerAnswer(call, "container-image", { action: "list" }, ImagesReport);
    if (settings.isJson) {
      terminal.out(`${safeJson(report)}\n`);
      return "ok";
    }
    const rows = plainValue(report).images.map(({ name, tag }) => [name, tag]);
    const text = tableText(["NAME", "TAG"], rows, (style, cell) => terminal.style(style, cell));
    terminal.out(rows.length === 0 ? "no image\n" : text);
    return "ok";
  },
};
