/**
 * How soon a stored prefix is asked for again: the rate of its return after `t` seconds of silence, learnt from the pauses that
 * the store has seen.
 *
 * Pauses before a return are heavy-tailed: a tool answers in seconds or in an hour. They are taken as Lomax distributed with
 * shape 1 and scale β, whose median is β: P(pause > t) = β / (β + t). A share ε of all turns is the last of its session. The
 * rate of return after t seconds of silence is then the density over what is left:
 *
 *   h(t) = (1 − ε)·β/(β + t)²  ÷  ((1 − ε)·β/(β + t) + ε)
 *
 * It falls like 1/t at first (silence means a long pause) and like 1/t² later (silence means the end). β is learnt for each
 * kind of turn on its own: one that ended in tool calls comes back sooner than one that answered a person, and a page that was
 * asked for again before is not the end of a prompt that nobody extends.
 */

/** How the turn ended that a prefix belongs to, as far as the caller knows. */
export type TurnEnd = "tool-calls" | "answer" | "unknown";

/** What pauses are told apart by: how the turn ended, and whether a request has come back to the page before. */
export type TurnKind = TurnEnd | `${TurnEnd}, again`;

const FIRST_GUESS_SECONDS = 20;
/** ε: the share of turns that are the last of their session. Results change little between 0.003 and 0.1. */
const LAST_TURNS = 0.03;
/** Part of a pause's surprise that moves β. */
const LEARNING_RATE = 0.05;

export class ReturnModel {
  readonly #medianSeconds = new Map<TurnKind, number>();
  #leftBehind = 0;
  #cameBack = 0;

  /** A request came back to a prefix of this kind after `pauseSeconds`. */
  observe(kind: TurnKind, pauseSeconds: number): void {
    const median = this.medianSeconds(kind);
    // The expectation of the surprise is 0 where β is right, and no single pause moves β by more than the learning rate.
    const surprise = (pauseSeconds - median) / (pauseSeconds + median);
    this.#medianSeconds.set(kind, median * Math.exp(LEARNING_RATE * surprise));
  }

  /** A session went on from an earlier point: the rest of its former prompt was left behind. */
  observeLeftBehind(): void {
    this.#leftBehind++;
  }

  /** What was left behind was asked for after all. */
  observeCameBack(): void {
    this.#cameBack++;
  }

  /** Expected returns per second. */
  rate(kind: TurnKind, silentSeconds: number): number {
    const median = this.medianSeconds(kind);
    const going = (1 - LAST_TURNS) * median;
    const since = median + silentSeconds;
    return going / (since * (going + LAST_TURNS * since));
  }

  /** Median pause, and the prior guess before any was seen. */
  medianSeconds(kind: TurnKind): number {
    return this.#medianSeconds.get(kind) ?? FIRST_GUESS_SECONDS;
  }

  /** Share of left-behind prompts that were asked for again; one in twenty before anything was seen. */
  get shareComingBack(): number {
    return Math.min(1, (this.#cameBack + 1) / (this.#leftBehind + 20));
  }
}
