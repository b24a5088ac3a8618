"""``interposer completion``: print a shell's script for completion, or what the words of a command line can become."""

from __future__ import annotations

import argparse
from typing import Final

from interposer.cli.arguments.completion import configure
from interposer.cli.completing import Candidate, candidates
from interposer.cli.streams import printable

__all__ = ["configure", "execute"]

_BASH: Final = r"""
_interposer() {
    local IFS=$'\n' line current
    local line_up_to_cursor=("${COMP_WORDS[@]:1:COMP_CWORD}")
    # bash divides words at "=" and ":", which are put together again here
    local words=() word
    local appended=0
    for word in "${line_up_to_cursor[@]}"; do
        if [[ ${#words[@]} -gt 0 && ( $word == [=:]* || $appended == 1 ) ]]; then
            words[${#words[@]}-1]+="$word"
        else
            words+=("$word")
        fi
        [[ $word == [=:] ]] && appended=1 || appended=0
    done
    current="${words[${#words[@]}-1]}"
    local last="${COMP_WORDS[COMP_CWORD]}"
    [[ $last == [=:] ]] && last=""
    local prefix="${current%"$last"}"
    COMPREPLY=()
    while IFS=$'\t' read -r line _; do
        COMPREPLY+=("${line#"$prefix"}")
    done < <("${COMP_WORDS[0]}" completion bash -- "${words[@]}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[/.=] ]]; then
        compopt -o nospace
    fi
    local index
    for index in "${!COMPREPLY[@]}"; do
        if [[ ${COMPREPLY[$index]} == *[^a-zA-Z0-9_.,/=:@%+~-]* ]]; then
            printf -v "COMPREPLY[$index]" '%q' "${COMPREPLY[$index]}"
        fi
    done
}
complete -F _interposer interposer
"""
_ZSH: Final = r"""
_interposer() {
    local -a values descriptions folders
    local value about
    while IFS=$'\t' read -r value about; do
        if [[ $value == */ || $value == *. ]]; then
            folders+=("$value")
        else
            values+=("$value")
            descriptions+=("$value${about:+ -- $about}")
        fi
    done < <("${words[1]}" completion zsh -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)
    local found=1
    (( ${#values} )) && compadd -l -d descriptions -a values && found=0
    (( ${#folders} )) && compadd -S '' -a folders && found=0
    return found
}
compdef _interposer interposer
"""
_FISH: Final = r"""
function __interposer_complete
    set -l words (commandline -opc) (commandline -ct)
    $words[1] completion fish -- $words[2..-1] 2>/dev/null
end
complete -c interposer -f -a '(__interposer_complete)'
"""
_SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def execute(args: argparse.Namespace) -> None:
    """Print the script, or after ``--`` the candidates for the last word, each with a tab and its description."""
    typed_words = args.typed[1:] if args.typed[:1] == ["--"] else args.typed  # as some versions of argparse leave it
    if not typed_words:
        print(_SCRIPTS[args.shell].strip())
        return
    for candidate in _candidates(typed_words):
        print("\t".join(filter(None, map(printable, candidate))))


def _candidates(words: list[str]) -> list[Candidate]:
    from interposer.cli.main import COMMANDS, parser_of  # noqa: PLC0415 - it imports this module

    return candidates(words, COMMANDS, parser_of)
