{{- define "gradgate.labels" -}}
app.kubernetes.io/name: gradgate
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "gradgate.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* The API as the daemon's own tool sees it: a restart helps where this fails. The kubelet's own gRPC probe would need plain TCP beyond loopback. */ -}}
{{- define "gradgate.probe" -}}
exec: {command: [gradgatectl, --dir, /run/gradgate, --timeout, "3", nodes, --local]}
periodSeconds: 20
timeoutSeconds: 5
{{- end }}
