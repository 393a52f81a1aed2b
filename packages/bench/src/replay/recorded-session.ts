/** Recorded coding-agent sessions: sizes, timing and prefix structure, no text. `data/README.md` says where they come from. */

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { CodedError } from "@kvasir/kit";

export interface RecordedRequest {
  /** Whole prompt in recorded tokens. */
  readonly promptTokens: number;
  readonly outputTokens: number;
  /** Leading tokens identical to those of the request before. */
  readonly sharedTokens: number;
  /** Pause before the request: a tool ran, or a person thought. */
  readonly pauseSeconds: number;
}

export interface RecordedSession {
  readonly id: string;
  /** Tokens of tool list and system prompt, which all sessions share. */
  readonly headTokens: number;
  readonly requests: readonly RecordedRequest[];
}

export const recordedSessionsPath = fileURLToPath(new URL("../../data/agent-sessions.jsonl", import.meta.url));

interface SessionLine {
  readonly id: string;
  readonly block: number;
  readonly tools: number;
  readonly system: number;
  readonly requests: ReadonlyArray<
    readonly [
      startSeconds: number,
      promptTokens: number,
      outputTokens: number,
      sharedBlocks: number,
      pauseSeconds: number,
      after: string,
    ]
  >;
}

export function readRecordedSessions(path = recordedSessionsPath): RecordedSession[] {
  return readFileSync(path, "utf8")
    .trim()
    .split("\n")
    .map((line, index) => parseSession(line, `${path}:${index + 1}`));
}

function parseSession(line: string, place: string): RecordedSession {
  const session = JSON.parse(line) as Partial<SessionLine>;
  const { id, block, tools, system, requests } = session;
  if (id === undefined || block === undefined || tools === undefined || system === undefined || !Array.isArray(requests)) {
    throw new CodedError(
      "bench_failed",
      `${place} is not a recorded session: id, block, tools, system and requests are needed.`,
    );
  }
  return {
    id,
    headTokens: tools + system,
    requests: (requests as SessionLine["requests"]).map(([, promptTokens, outputTokens, sharedBlocks, pauseSeconds]) => ({
      promptTokens,
      outputTokens,
      sharedTokens: Math.min(sharedBlocks * block, promptTokens),
      pauseSeconds,
    })),
  };
}
