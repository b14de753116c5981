#!/bin/bash
# healthcheck.sh PORT PATH [WORD]: succeeds if this machine answers GET PATH with status 200 and a text with WORD.
# It uses bash only, because some of the servers' images have no curl.
exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 1
printf 'GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$2" >&3
answer=$(cat <&3)
[[ $answer == HTTP/1.?" 200"* && $answer == *"${3:-}"* ]]
