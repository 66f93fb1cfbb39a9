import { startHelper, type Running, type StartOptions } from "../programs.ts";
import type { LoadAnswers, LoadQuestion } from "./questions.ts";

/** The load generator, a process of its own. */
export interface Load extends Running {
  ask<Q extends LoadQuestion>(question: Q): Promise<LoadAnswers[Q["do"]]>;
}

export function startLoad(options: StartOptions = {}): Load {
  const helper = startHelper("l4/load.ts", [], options);
  return {
    pid: helper.pid,
    end: (signal) => helper.end(signal),
    async ask(question) {
      const answer = JSON.parse(await helper.ask(JSON.stringify(question))) as LoadAnswers[(typeof question)["do"]];
      if ("error" in answer) throw new Error(`${question.do}: ${String(answer.error)}`);
      return answer;
    },
  };
}
